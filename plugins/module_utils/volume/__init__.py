"""The Docker volume with the files of NVIDIA's driver. Its part of a run is in `site/volume_part.py`."""
