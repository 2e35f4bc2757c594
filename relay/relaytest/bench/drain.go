package main

import "context"

// drain is not measured yet.
func drain(context.Context, *bench) error { return nil }
