"""Kubernetes as a driver: pods, BindRequests and the kubelet's allocations become claims, homes and identities."""
