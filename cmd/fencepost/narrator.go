package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// narrator tells a long command's story as it goes on: lines, and on a
// terminal a bar below them. Its methods may be called from any goroutine.
type narrator struct {
	out io.Writer

	mu   sync.Mutex
	what string
	done int
	bar  *progressbar.ProgressBar
}

// line tells what has happened.
func (n *narrator) line(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clear()
	fmt.Fprintln(n.out, printable(text))
}

// progress moves the bar of what is being done. Of two calls that overtake
// each other the larger counts.
func (n *narrator) progress(what string, done, total int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !isTerminal(n.out) {
		return
	}
	if n.bar == nil || n.what != what {
		n.clear()
		n.what, n.done = what, 0
		n.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(n.out),
			progressbar.OptionSetDescription(what),
			progressbar.OptionShowCount(),
			progressbar.OptionSetWidth(40),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetPredictTime(false),
			progressbar.OptionClearOnFinish(),
		)
	}
	n.done = max(n.done, done)
	_ = n.bar.Set(n.done) // an ornament
}

// end takes the bar away.
func (n *narrator) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clear()
}

func (n *narrator) clear() {
	if n.bar != nil && !n.bar.IsFinished() {
		_ = n.bar.Clear()
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
