"""Where what is known of an origin lives between two requests."""
