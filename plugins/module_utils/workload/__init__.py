"""Draining a host: adapters, records, waiting. When a run drains is in `site/drain_decision.py`."""
