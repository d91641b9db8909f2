"""Slurm's configuration of a node, its client and jobs. Draining for any scheduler is in `workload`."""
