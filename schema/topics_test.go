package schema

import "testing"

func TestTopics(t *testing.T) {
	for _, tt := range []struct {
		only, except []string
		typ          string
		want         bool
	}{
		{nil, nil, "", true},
		{nil, nil, "order.placed", true},
		{[]string{"order.*"}, nil, "order.placed", true},
		{[]string{"order.*"}, nil, "orders.placed", false},
		{[]string{"order.*"}, nil, "my.order.placed", false},
		{[]string{"order.?"}, nil, "order.ü", true},
		{[]string{"order.*"}, nil, "order.", true},
		{[]string{"order.*"}, nil, "Order.placed", false},
		{[]string{"*"}, nil, "shop/order\nplaced", true},
		{[]string{"a", "b*"}, nil, "bc", true},
		{[]string{"a|b"}, nil, "a", false},
		{[]string{"[ab]"}, nil, "a", false},
		{[]string{`a\d`}, nil, "a1", false},
		{nil, []string{"order.*"}, "order.placed", false},
		{nil, []string{"order.*"}, "invoice.issued", true},
		{[]string{"order.*"}, []string{"*.placed"}, "order.placed", false},
		{[]string{"order.*"}, []string{"*.placed"}, "order.paid", true},
		{[]string{"?*"}, nil, "", false},
	} {
		topics, err := NewTopics(tt.only, tt.except)
		if err != nil {
			t.Fatal(err)
		}
		if got := topics.Want(tt.typ); got != tt.want {
			t.Errorf("only %q except %q: %q: got %v, want %v", tt.only, tt.except, tt.typ, got, tt.want)
		}
	}
	for _, glob := range []string{"", "\xff"} {
		if _, err := NewTopics([]string{"a", glob}, nil); err == nil {
			t.Errorf("the glob %q is taken", glob)
		}
	}
}
