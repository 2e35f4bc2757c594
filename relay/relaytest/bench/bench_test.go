package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

func TestPairs(t *testing.T) {
	b := &bench{runs: 3}
	var order []string
	note := func(who string) func(context.Context) error {
		return func(context.Context) error {
			order = append(order, who)
			return nil
		}
	}
	if err := b.pairs(t.Context(), note("relay"), note("reference")); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(order, " "), "relay reference reference relay relay reference"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestChoose(t *testing.T) {
	all, err := choose("")
	if err != nil || len(all) != len(parts) {
		t.Errorf("got %d parts, %v", len(all), err)
	}
	some, err := choose("growth,cpu")
	if err != nil || len(some) != 2 || some[0].sections[0] != "drain" {
		t.Errorf("got %v, %v", some, err)
	}
	if _, err := choose("drains"); err == nil {
		t.Error("an unknown section is taken")
	}
}

// The processor time of a process that works grows.
func TestCPU(t *testing.T) {
	before, err := cpu(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		now, err := cpu(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if now > before {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still %v after 10 s of work", now)
		}
	}
}
