"""Headwater's face: `import headwater as hw` gives the job API; the CLI, the configuration and the local stack."""
