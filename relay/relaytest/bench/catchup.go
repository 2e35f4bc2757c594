package main

import "context"

// catchUp is not measured yet.
func catchUp(context.Context, *bench) error { return nil }
