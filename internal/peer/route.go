package peer

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Route leads to one of several addresses: those of the servers that a config
// names, and those of a name. The one that took us in last comes first: a host
// that vanished says nothing, and for as long as it is named each new
// connection would wait for it.
//
// The zero value is ready. It may be used from any goroutine.
type Route struct {
	mu   sync.Mutex
	last string // the address that took us in last; "": none yet
}

// Take makes a connection by the config find the server that takes writes, see
// PreferPrimary: at the last address first, and with the given time shared
// evenly, so that the last one has its turn too. Names are looked up now.
func (r *Route) Take(ctx context.Context, config *pgx.ConnConfig, within time.Duration) {
	PreferPrimary(config)
	r.mu.Lock()
	last := r.last
	r.mu.Unlock()

	targets := []*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}}
	targets = append(targets, config.Fallbacks...)
	names := make(map[string]answer)
	all := make(map[string]bool) // a server may be named twice, with and without TLS
	led := func(*pgconn.FallbackConfig) bool { return false }
	for _, t := range targets {
		if !strings.HasPrefix(t.Host, "/") {
			if _, known := names[t.Host]; !known {
				ips, err := config.LookupFunc(ctx, t.Host)
				names[t.Host] = answer{ips, err}
			}
		}
		for _, a := range addresses(t, names[t.Host].ips) {
			all[a] = true
			if a == last {
				host, port := t.Host, t.Port
				led = func(t *pgconn.FallbackConfig) bool { return t.Host == host && t.Port == port }
			}
		}
	}
	first(targets, led)
	config.Host, config.Port, config.TLSConfig = targets[0].Host, targets[0].Port, targets[0].TLSConfig
	config.Fallbacks = targets[1:]
	lastIP, _, _ := net.SplitHostPort(last) // fails for a socket's path, which is no ip either
	config.LookupFunc = func(_ context.Context, host string) ([]string, error) {
		a := names[host]
		ips := slices.Clone(a.ips)
		first(ips, func(ip string) bool { return ip == lastIP || ip == last })
		return ips, a.err
	}
	if limit := within / time.Duration(max(1, len(all))); config.ConnectTimeout <= 0 || config.ConnectTimeout > limit {
		config.ConnectTimeout = limit
	}

	validate := config.ValidateConnect
	config.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		err := validate(ctx, conn)
		if err == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.last = conn.Conn().RemoteAddr().String()
		}
		return err
	}
}

// answer is what became of the look-up of one name.
type answer struct {
	ips []string
	err error
}

// addresses are those of a target whose name was looked up, in the form that a
// connection has them in. What a look-up returns may have a port of its own.
func addresses(t *pgconn.FallbackConfig, ips []string) (all []string) {
	if strings.HasPrefix(t.Host, "/") {
		_, path := pgconn.NetworkAddress(t.Host, t.Port)
		return []string{path}
	}
	for _, ip := range ips {
		if _, _, err := net.SplitHostPort(ip); err != nil {
			ip = net.JoinHostPort(ip, strconv.Itoa(int(t.Port)))
		}
		all = append(all, ip)
	}
	return all
}

// first moves what is wanted to the front and keeps the order otherwise.
func first[T any](all []T, wanted func(T) bool) {
	slices.SortStableFunc(all, func(a, b T) int {
		switch {
		case wanted(a) == wanted(b):
			return 0
		case wanted(a):
			return -1
		}
		return 1
	})
}
