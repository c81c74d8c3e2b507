package report

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPrintOnATerminal(t *testing.T) {
	for name, c := range map[string]struct {
		noColour, term string
		colours        bool
	}{
		"colours":  {"", "xterm", true},
		"NO_COLOR": {"1", "xterm", false},
		"dumb":     {"", "dumb", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NO_COLOR", c.noColour)
			t.Setenv("TERM", c.term)
			out := printed(t, 120)
			if !strings.Contains(out, "│") || strings.Contains(out, "\x1b[") != c.colours {
				t.Errorf("%q", out)
			}
		})
	}
}

// printed is what a run looks like on a terminal of that width.
func printed(t *testing.T, width uint16) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: width}); err != nil {
		t.Fatal(err)
	}
	read := make(chan string)
	go func() { // ends when the other side is closed
		var all []byte
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			all = append(all, buffer[:n]...)
			if err != nil {
				read <- string(all)
				return
			}
		}
	}()
	Print(terminal, smallSample())
	if err := terminal.Close(); err != nil {
		t.Error(err)
	}
	return <-read
}
