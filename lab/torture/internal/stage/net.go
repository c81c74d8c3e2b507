package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage/filter"
)

// Net is the network of one process, or rather of all its lives: a way to each
// place of a server, and one through the pooler. A fault is one of all ways.
type Net struct {
	stage *Stage
	name  string
	ways  [len(places) + 1]*way // the last one leads to the pooler
}

// The pooler's way comes after those to the places.
const throughPooler = len(places)

// way is a chain of two proxies: ours, that holds bytes and chooses among
// notifications, and behind it Toxiproxy.
type way struct {
	front *filter.Proxy
	mu    sync.Mutex
	toxic *toxiproxy.Proxy
	to    string // where the chain leads; "": nowhere
}

// quiet is what Toxiproxy wants to have around its proxies. It is never
// listened to, and its log is nowhere.
var quiet = sync.OnceValue(func() *toxiproxy.ApiServer {
	zerolog.SetGlobalLevel(zerolog.Disabled) // some toxics use the log of everybody
	return toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
})

func newWay(name, to string) (*way, error) {
	front, err := filter.Listen()
	if err != nil {
		return nil, err
	}
	w := &way{front: front, toxic: toxiproxy.NewProxy(quiet(), name, "127.0.0.1:0", "")}
	return w, w.aim(to)
}

// aim makes the chain lead to another address, or nowhere. Connections to the
// one before end.
func (w *way) aim(to string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if to == w.to {
		return nil
	}
	w.to = to
	w.toxic.Stop()
	w.front.Cut()
	w.front.Aim("", "")
	if to == "" {
		return nil
	}
	w.toxic.Lock()
	// A new port: somebody may have taken the old one.
	w.toxic.Listen, w.toxic.Upstream = "127.0.0.1:0", to
	w.toxic.Unlock()
	if err := w.toxic.Start(); err != nil {
		return fmt.Errorf("start toxiproxy: %w", err)
	}
	w.front.Aim("tcp", w.toxic.Listen)
	return nil
}

func (w *way) close() error {
	w.front.Release(filter.Up)
	w.front.Release(filter.Down)
	return errors.Join(w.aim(""), w.front.Close())
}

// network returns the network of a process by its name without a life.
func (s *Stage) network(ctx context.Context, name string) (*Net, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nets[name]; n != nil {
		return n, nil
	}
	if s.closed {
		return nil, errClosed
	}
	n := &Net{stage: s, name: name}
	s.nets[name] = n
	for place, server := range s.servers {
		w, err := newWay(name+" to "+places[place], addressOf(server))
		if err != nil {
			return nil, err
		}
		n.ways[place] = w
	}
	return n, nil
}

func addressOf(server *pg.Server) string {
	if server == nil {
		return ""
	}
	u, err := url.Parse(server.TCPURL(Database))
	if err != nil {
		return ""
	}
	return u.Host
}

// aim makes the ways of all processes to a place lead to the server there, if
// it is to be reached.
func (s *Stage) aim(place int, reachable bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := ""
	if reachable {
		to = addressOf(s.servers[place])
	}
	var errs []error
	for _, n := range s.nets {
		errs = append(errs, n.ways[place].aim(to))
	}
	return errors.Join(errs...)
}

// dsn is the connection string of the process over its own network.
func (n *Net) dsn(role, password string, standby bool) string {
	q := url.Values{"sslmode": {"disable"}, "connect_timeout": {"5"}}
	var hosts, ports []string
	for place := range places {
		if place == 0 || standby {
			hosts = append(hosts, "127.0.0.1")
			ports = append(ports, strconv.Itoa(n.ways[place].front.Port()))
		}
	}
	q.Set("host", strings.Join(hosts, ","))
	q.Set("port", strings.Join(ports, ","))
	if standby {
		q.Set("target_session_attrs", "read-write")
	}
	u := url.URL{Scheme: "postgres", User: url.UserPassword(role, password), Path: "/" + Database, RawQuery: q.Encode()}
	return u.String()
}

// all are the ways that there are.
func (n *Net) all() []*way {
	n.stage.mu.Lock()
	defer n.stage.mu.Unlock()
	var all []*way
	for _, w := range n.ways {
		if w != nil {
			all = append(all, w)
		}
	}
	return all
}

// Hold keeps back all bytes in the directions that are given, and says nothing
// to anybody. Release lets go on what was held; nothing is lost.
func (n *Net) Hold(directions ...filter.Direction) {
	for _, w := range n.all() {
		for _, d := range directions {
			w.front.Hold(d)
		}
	}
}

// Release ends Hold.
func (n *Net) Release() {
	for _, w := range n.all() {
		w.front.Release(filter.Up)
		w.front.Release(filter.Down)
	}
}

// Cut resets all connections, and loses what was held.
func (n *Net) Cut() {
	for _, w := range n.all() {
		w.front.Cut()
	}
}

// Bells decides what becomes of notifications; nil: nothing special.
func (n *Net) Bells(fate func(channel, payload string) filter.Fate) {
	for _, w := range n.all() {
		w.front.Bells(fate)
	}
}

// Withheld counts the notifications that did not simply pass.
func (n *Net) Withheld() int {
	sum := 0
	for _, w := range n.all() {
		sum += w.front.Withheld()
	}
	return sum
}

// Toxic adds a toxic of Toxiproxy, by its type and attributes, to one
// direction. A connection that one of them ends is reset.
func (n *Net) Toxic(kind string, d filter.Direction, attributes map[string]int) error {
	text, err := json.Marshal(map[string]any{
		"type": kind, "stream": map[filter.Direction]string{filter.Up: "upstream", filter.Down: "downstream"}[d],
		"attributes": attributes,
	})
	if err != nil {
		return err
	}
	for _, w := range n.all() {
		w.front.Abrupt(true)
		if _, err := w.toxic.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
			return fmt.Errorf("add toxic %s: %w", kind, err)
		}
	}
	return nil
}

// Pure removes all toxics. Toxiproxy waits for each connection that has one, and
// knows no context: who it waits for longer than ours is left.
func (n *Net) Pure(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, w := range n.all() {
			w.toxic.Toxics.ResetToxics(ctx)
			w.front.Abrupt(false)
		}
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("remove the toxics of %s: %w", n.name, context.Cause(ctx))
	}
}

// Links counts the open connections.
func (n *Net) Links() int {
	sum := 0
	for _, w := range n.all() {
		sum += w.front.Links()
	}
	return sum
}

func (n *Net) close() error {
	var errs []error
	for _, w := range n.all() {
		errs = append(errs, w.close())
	}
	return errors.Join(errs...)
}
