"""The proof that containers see the GPUs of the host. Containers of users are in `container`."""
