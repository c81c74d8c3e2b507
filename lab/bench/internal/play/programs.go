package play

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// crews says how the child of each peer is started. Those on Node are
// installed when they are first needed.
var crews = map[string]func(programs) ([]string, error){
	"fencepost": func(p programs) ([]string, error) { return []string{p.crew, "fencepost"}, nil },
}

// programs are the children, built or installed.
type programs struct{ crew string }

// build builds the child of the queues in Go. It is built in the folder of the
// nested module, which is where go run ./bench is called.
func build(ctx context.Context, out string) (p programs, err error) {
	if p.crew, err = filepath.Abs(filepath.Join(out, "crew")); err != nil {
		return p, err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", p.crew, "github.com/fencepost-go/fencepost/lab/bench/crew")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return p, fmt.Errorf("build the crew: %w", err)
	}
	return p, nil
}

// start starts a child and opens it.
func (p programs) start(log io.Writer) func(context.Context, string, wire.Options) (*wire.Child, error) {
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
		return child, nil
	}
}
