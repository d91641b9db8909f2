"""Which GPUs of a host a container gets: the options `gpus` and `conditions`, and the choice.

What holds GPUs is in the package above.
"""
