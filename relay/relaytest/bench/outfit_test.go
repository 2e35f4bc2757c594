package main

import "testing"

func TestPlainPayloadHas300Bytes(t *testing.T) {
	if len(plainPayload) != 300 {
		t.Errorf("%d bytes", len(plainPayload))
	}
}

func TestPublishes(t *testing.T) {
	publish := []byte{1, 0, 1, 0, 0, 0, 20, 0, 60, 0, 40, 0, 0}
	for _, tt := range []struct {
		name string
		sent []byte
		want bool
	}{
		{"nothing", nil, false},
		{"behind the greeting", append([]byte("AMQP\x00\x00\x09\x01"), publish...), true},
		{"its class is cut off", publish[:9], false},
		{"another method of the class", []byte{1, 0, 1, 0, 0, 0, 20, 0, 60, 0, 20}, false},
		{"the bytes in a body", append([]byte{3}, publish[1:]...), false},
		{"behind the bytes in a body", append(append([]byte{3}, publish[1:]...), publish...), true},
	} {
		if got := publishes(tt.sent); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}

func TestEventNumber(t *testing.T) {
	if n, ok := eventNumber(7, "00000000-0000-0007-0000-000000012345"); n != 0x12345 || !ok {
		t.Errorf("%#x, %t", n, ok)
	}
	for _, other := range []string{"00000000-0000-0008-0000-000000012345", "", "none"} {
		if _, ok := eventNumber(7, other); ok {
			t.Errorf("%q is of series 7", other)
		}
	}
	if id := eventID(7, 0x12345); string(id) != "\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x01\x23\x45" {
		t.Errorf("%x", id)
	}
}
