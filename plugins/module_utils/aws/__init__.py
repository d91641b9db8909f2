"""EC2's instance types, inventory groups and the variables of playbook `aws_create`.

The driver of AWS Neuron is in `neuron_driver`.
"""
