"""What a part declares, its plan and its steps, for parts of all vendors. The registry of the parts is in `site`."""
