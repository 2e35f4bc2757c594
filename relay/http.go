package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
)

// serve answers on address until the returned function is called: the status
// page and its events, /metrics, /healthz and /readyz; with debug also Go's
// profiles.
func (b *board) serve(address string, debug bool, log zerolog.Logger) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w: --listen %s: %w; choose a free address, or --listen '' for none", ErrUnfit, address, err)
	}
	local := loopback(listener.Addr().String())
	if !local {
		readable := "state, position, table, the servers' addresses, errors, metrics"
		if debug {
			readable += ", profiles of the process"
		}
		log.Warn().Str("listen", listener.Addr().String()).Str("readable", readable).
			Msg("--listen is not a loopback address: who reaches it reads this without a password")
	}
	readers := newStreams(b)
	server := newServer(b.handler(readers, debug))
	if local {
		server.Handler = named(address, server.Handler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { readers.tell(ctx.Done()) })
	done.Go(func() { b.observe(ctx, readers.read) })
	done.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			b.failed(fmt.Errorf("relay: --listen %s: %w", address, err))
		}
	})
	return func() {
		readers.end()
		cancel()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
		done.Wait()
	}, nil
}

func newServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
}

// handler answers all paths. Nothing can be changed through it.
func (b *board) handler(readers *streams, debug bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", servePage)
	mux.Handle("/events", readers)
	mux.Handle("/metrics", promhttp.HandlerFor(b.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		what, ok := b.lives()
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, cmp.Or(what, "alive"))
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		reason, ok := b.ready()
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, reason)
	})
	there := "/ /events /metrics /healthz /readyz"
	if debug {
		there += " /debug/pprof/"
		mux.Handle("/debug/pprof/", unhurried(pprof.Index))
		mux.Handle("/debug/pprof/profile", unhurried(pprof.Profile))
		mux.Handle("/debug/pprof/trace", unhurried(pprof.Trace))
		mux.Handle("/debug/pprof/symbol", unhurried(pprof.Symbol))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "there is no such page; there are: "+there, http.StatusNotFound)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "this can only be read: GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// unhurried serves a profile, which takes as long as its reader asks for:
// pprof compares that with the server's limit of a write.
func unhurried(profile http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).SetWriteDeadline(time.Time{}) //nolint:errcheck // then the server's limit holds
		profile(w, r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{})))
	})
}

// named refuses requests by a name that is not of this machine's own: a page of
// another site whose name was made to lead here (DNS rebinding) could read all.
// listen is what the operator gave.
func named(listen string, next http.Handler) http.Handler {
	own := hostOf(listen)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostOf(r.Host)
		if host != "" && host != "localhost" && host != own && net.ParseIP(host) == nil {
			http.Error(w, fmt.Sprintf("%q does not name this machine; ask for localhost or 127.0.0.1, or give --listen that name", host), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostOf is the host of host:port or host, without brackets, in lower case.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}
