"""HTTP: what the services of the package share; no service imports another one."""
