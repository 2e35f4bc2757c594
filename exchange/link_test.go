package exchange

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestAddress(t *testing.T) {
	tests := map[string]string{
		"amqp://u:s3cret@broker:5673/shop":           "amqp://broker:5673/shop",
		"amqps://u:s3cret@broker/":                   "amqps://broker:5671/%2F",
		"amqp://":                                    "amqp://localhost:5672/%2F",
		"amqp://u:s3cret@[::1]/a%2Fb?heartbeat=3":    "amqp://[::1]:5672/a%2Fb",
		"amqp://u:s3cret/x@broker/":                  "(unreadable AMQP URL)",
		"amqp://u:12/s3cret@broker/":                 "(unreadable AMQP URL)",
		"amqp://u:12?s3cret@broker/":                 "(unreadable AMQP URL)",
		"amqp://u:12#s3cret@broker/":                 "(unreadable AMQP URL)",
		"amqp://u:s3cret%zz@broker/":                 "(unreadable AMQP URL)",
		"amqp://u:s3cret @broker/":                   "(unreadable AMQP URL)",
		"http://u:s3cret@broker/":                    "(unreadable AMQP URL)",
		"amqp://u:s3cret@broker/?auth_mechanism=gss": "(unreadable AMQP URL)",
		"amqp://u:s3cret@broker/?heartbeat=s3cret":   "(unreadable AMQP URL)",
		"": "(unreadable AMQP URL)",
	}
	for url, want := range tests {
		if got := Address(url); got != want {
			t.Errorf("Address(%q): got %q, want %q", url, got, want)
		}
	}
}

func TestNoSecretInText(t *testing.T) {
	for _, url := range []string{
		"amqp://u:s3cret@127.0.0.1:1/", "amqp://u:s3cret%zz@broker/", "amqp://u:s3cret/x@broker/",
		"amqp://u:12/s3cret@broker/", "amqp://u:s3 cret@broker/", "amqps://u:s3cret@127.0.0.1:1/",
	} {
		cfg := Config{URL: url, Password: "s3cret", Exchange: "outbox"}
		_, dialErr := Dial(t.Context(), cfg)
		_, inspectErr := Inspect(t.Context(), cfg)
		consumer := &Consumer{URL: url, Password: "s3cret", Queue: "outbox.0"}
		runErr := consumer.Run(t.Context())
		for _, text := range []string{
			fmt.Sprint(dialErr), fmt.Sprint(inspectErr), fmt.Sprint(runErr), fmt.Sprint(cfg),
			fmt.Sprintf("%+v %#v %v", cfg, cfg, &cfg), fmt.Sprintf("%+v %#v %v", consumer, consumer, *consumer),
		} {
			if strings.Contains(text, "s3") || strings.Contains(text, "cret") {
				t.Errorf("%s: secret in %q", url, text)
			}
		}
		if dialErr == nil || inspectErr == nil || runErr == nil {
			t.Errorf("%s: no error", url)
		}
		if unreadable := Address(url) == "(unreadable AMQP URL)"; errors.Is(dialErr, ErrURL) != unreadable {
			t.Errorf("%s: got %v", url, dialErr)
		}
	}
}

func TestExchangeName(t *testing.T) {
	for _, name := range []string{"", strings.Repeat("x", 241)} {
		if _, err := Dial(t.Context(), Config{URL: "amqp://127.0.0.1:1", Exchange: name}); !errors.Is(err, ErrExchange) {
			t.Errorf("exchange %q: got %v, want ErrExchange", name, err)
		}
	}
}
