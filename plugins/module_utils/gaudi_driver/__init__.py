"""Role gaudi_driver: packages, repository, modules, runtime.

Gaudi's containers are in `container/gaudi`, its facts in `accelerators`.
"""
