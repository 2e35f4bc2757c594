package main

import "context"

// latency is not measured yet.
func latency(context.Context, *bench) error { return nil }
