"""What stands behind `flowengine.client`: the clients, and their two ways to runs. Begin with `clients`."""
