"""Role nvidia_container_toolkit: packages, runtimes, CDI units. Writing a specification is in `cdi`."""
