"""The user's options of a container that give it GPUs, in the notation of the engines' modules.

What a container is assigned is in `container`.
"""
