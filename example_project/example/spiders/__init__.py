"""A ladder of small spiders: read them in the order of their numbers."""
