"""Makes the pages of the site that are generated from the code. No other room imports it."""
