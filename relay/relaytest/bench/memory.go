package main

import "context"

// memory is not measured yet.
func memory(context.Context, *bench) error { return nil }
