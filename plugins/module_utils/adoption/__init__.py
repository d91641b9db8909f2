"""What playbook `dlami` may change on a prepared image, and its report. Recognizing an image is in `host`."""
