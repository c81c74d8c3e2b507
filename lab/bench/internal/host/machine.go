package host

import (
	"context"
	"errors"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Machine is the computer that is measured on.
type Machine struct {
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`  // that this program may use
	Memory    int64  `json:"memory"` // bytes
	Kernel    string `json:"kernel"`
	Go        string `json:"go"`
}

var (
	processorModel = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)
	memoryTotal    = regexp.MustCompile(`(?m)^MemTotal:\s*(\d+) kB$`)
)

// ThisMachine reads what Linux says of it.
func ThisMachine() (Machine, error) {
	m := Machine{Processor: runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version()}
	kernel, err1 := os.ReadFile("/proc/sys/kernel/osrelease")
	cpu, err2 := os.ReadFile("/proc/cpuinfo")
	mem, err3 := os.ReadFile("/proc/meminfo")
	if err := errors.Join(err1, err2, err3); err != nil {
		return m, err
	}
	m.Kernel = "Linux " + strings.TrimSpace(string(kernel))
	if found := processorModel.FindSubmatch(cpu); found != nil { // there is none on arm64
		m.Processor = string(found[1])
	}
	if found := memoryTotal.FindSubmatch(mem); found != nil {
		kib, err := strconv.ParseInt(string(found[1]), 10, 64)
		if err != nil {
			return m, err
		}
		m.Memory = kib * 1024
	}
	return m, nil
}

// Version of the server, such as "18.4".
func (h *Host) Version(ctx context.Context) (version string, err error) {
	err = h.admin(ctx, func(c *pgx.Conn) error { return c.QueryRow(ctx, "SHOW server_version").Scan(&version) })
	return version, err
}
