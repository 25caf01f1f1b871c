"""Running jobs from the platform: their leases, their session and source, what they did last."""
