package stage

import (
	"context"
	"fmt"
	"net/url"

	"github.com/fencepost-go/fencepost/lab/torture/internal/stage/filter"
)

// poolerSize is how many sessions of the server the pooler has.
const poolerSize = 20

// Pooled returns a connection string for a process that leads over its own
// network through a pooler in transaction mode to the current primary, and so
// as the superuser: the pooler knows no other. It fails without PgBouncer.
func (s *Stage) Pooled(ctx context.Context, p *Process) (dsn string, err error) {
	relay, err := s.relay(ctx)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	to := fmt.Sprintf("127.0.0.1:%d", relay.Port())
	w := p.net.ways[throughPooler]
	if w == nil {
		if w, err = newWay(p.base+" to the pooler", to); err != nil {
			return "", err
		}
		p.net.ways[throughPooler] = w
	} else if err := w.aim(to); err != nil {
		return "", err
	}
	u := url.URL{
		Scheme: "postgres", User: url.User("postgres"),
		Host: fmt.Sprintf("127.0.0.1:%d", w.front.Port()), Path: "/" + Database,
		RawQuery: "sslmode=disable&connect_timeout=5",
	}
	return u.String(), nil
}

// relay leads from TCP, which Toxiproxy needs, to the pooler's socket. There is
// one for each server that was a primary, and it ends with the stage.
func (s *Stage) relay(ctx context.Context) (*filter.Proxy, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	server := s.servers[s.primary]
	if relay := s.poolers[server]; relay != nil {
		return relay, nil
	}
	dsn, err := server.Pooler(ctx, "transaction", poolerSize)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(dsn(Database))
	if err != nil {
		return nil, err
	}
	relay, err := filter.Listen()
	if err != nil {
		return nil, err
	}
	q := u.Query()
	relay.Aim("unix", q.Get("host")+"/.s.PGSQL."+q.Get("port"))
	s.poolers[server] = relay
	return relay, nil
}
