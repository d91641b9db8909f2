"""Hosts that configure themselves: user data, the service that pulls, its result. The inventory of EC2 is in `aws`."""
