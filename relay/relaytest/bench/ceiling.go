package main

import "context"

// ceiling is not measured yet.
func ceiling(context.Context, *bench) error { return nil }
