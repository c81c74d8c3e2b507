package play

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// nodeMajor is the oldest Node that is taken: the peers ask for 22.18. Where
// there is an older one, npm fetches a new one.
const nodeMajor = 24

// errNode means that npm is not there, or cannot reach its registry.
var errNode = errors.New("install the peers on Node, for which Node.js with npm is needed")

// node is the folder of the children on Node.
type node struct {
	dir  string
	once sync.Once
	path string
	err  error
}

// program is the Node that runs them. The first call installs what they need
// from npm's registry, exactly the versions of the lock, without running any
// script of theirs.
func (n *node) program() (string, error) {
	n.once.Do(func() { n.path, n.err = n.install() })
	return n.path, n.err
}

func (n *node) install() (string, error) {
	args := []string{"ci", "--loglevel=error"}
	path, found := installed()
	if found {
		args = append(args, "--omit=optional") // the fetched Node
	} else {
		path = filepath.Join(n.dir, "node_modules", "node-"+platform(), "bin", "node")
	}
	lock, err := os.ReadFile(filepath.Join(n.dir, "package-lock.json"))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(lock, strings.Join(args, " ")...))
	stamp, want := filepath.Join(n.dir, "node_modules", ".bench"), hex.EncodeToString(sum[:])
	if have, err := os.ReadFile(stamp); err == nil && string(have) == want {
		return path, nil
	}
	cmd := exec.Command("npm", args...)
	cmd.Dir = n.dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: npm ci: %w\n%s", errNode, err, out.Bytes())
	}
	return path, os.WriteFile(stamp, []byte(want), 0o644)
}

// platform is what npm calls this computer's.
func platform() string {
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	return runtime.GOOS + "-" + arch
}

// installed finds a Node on this computer that is new enough.
func installed() (path string, ok bool) {
	path, err := exec.LookPath("node")
	if err != nil {
		return "", false
	}
	version, err := exec.Command(path, "--version").Output()
	if err != nil {
		return "", false
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), ".")
	n, err := strconv.Atoi(major)
	return path, err == nil && n >= nodeMajor
}
