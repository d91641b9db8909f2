"""What gpu_container does for AWS Neuron's chips. What is true for every vendor is in the package above."""
