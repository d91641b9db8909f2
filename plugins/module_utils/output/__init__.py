"""What runs print while they work. The tables of plans and fleets are in `site`."""
