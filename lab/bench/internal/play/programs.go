package play

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// crews says how the child of each peer is started. Those on Node are
// installed when they are first needed.
var crews = map[string]func(programs) ([]string, error){
	"fencepost": inGo("fencepost"),
	"river":     inGo("river"),
	"gue":       inGo("gue"),
	"floor":     inGo("floor"),
	"wakefloor": inGo("wakefloor"),
	"guest":     inGo("guest"),
	"graphile":  onNode("graphile.mjs"),
	"pgboss":    onNode("pgboss.mjs"),
}

func inGo(name string) func(programs) ([]string, error) {
	return func(p programs) ([]string, error) { return []string{p.crew, name}, nil }
}

func onNode(script string) func(programs) ([]string, error) {
	return func(p programs) ([]string, error) {
		node, err := p.node.program()
		if err != nil {
			return nil, err
		}
		return []string{node, "--expose-gc", filepath.Join(p.node.dir, script)}, nil
	}
}

// programs are the children, built or installed.
type programs struct {
	crew string
	node *node
}

// build builds the child of the queues in Go. It is called in a folder of the
// nested module, as by go run ./bench.
func build(ctx context.Context, out string) (p programs, err error) {
	if p.crew, err = filepath.Abs(filepath.Join(out, "crew")); err != nil {
		return p, err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", p.crew, "github.com/fencepost-go/fencepost/lab/bench/crew")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return p, fmt.Errorf("build the crew: %w", err)
	}
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/fencepost-go/fencepost/lab").Output()
	if err != nil {
		return p, fmt.Errorf("find the folder of the module: %w", err)
	}
	p.node = &node{dir: filepath.Join(strings.TrimSpace(string(dir)), "bench", "node")}
	return p, nil
}

// start starts a child and opens it. It tells of which version each peer is.
func (p programs) start(log io.Writer, is func(peer, version string)) func(context.Context, string, wire.Options) (*wire.Child, error) {
	return func(ctx context.Context, peer string, o wire.Options) (*wire.Child, error) {
		command, ok := crews[peer]
		if !ok {
			return nil, fmt.Errorf("there is no peer %q", peer)
		}
		argv, err := command(p)
		if err != nil {
			return nil, err
		}
		child, err := wire.Start(peer, exec.Command(argv[0], argv[1:]...), log)
		if err != nil {
			return nil, err
		}
		var d wire.Described
		if err := child.Call(ctx, wire.DoOpen, o, &d); err != nil {
			_ = child.Close() // the first error is the one to tell
			return nil, err
		}
		child.Described = d
		is(peer, d.Version)
		return child, nil
	}
}
