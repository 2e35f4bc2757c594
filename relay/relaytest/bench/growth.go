package main

import "context"

// growth is not measured yet.
func growth(context.Context, *bench) error { return nil }
