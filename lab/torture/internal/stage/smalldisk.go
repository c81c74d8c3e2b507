package stage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// OntoSmallDisk makes a directory, with what is in it, a file system of its own
// that has so much room left, in bytes. Nobody may be using it.
func OntoSmallDisk(dir string, room int64) error {
	away := dir + ".disk"
	used := int64(0)
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			used += info.Size() + 4096
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := os.Rename(dir, away); err != nil {
		return err
	}
	err = Owned(dir, away)
	if err == nil {
		err = Mount(dir, used+room)
	}
	if err == nil {
		if err = move(away, dir); err != nil {
			err = errors.Join(err, Unmount(dir))
		}
	}
	if err != nil {
		return errors.Join(err, os.Remove(dir), os.Rename(away, dir))
	}
	return os.RemoveAll(away)
}

// OffSmallDisk is the way back.
func OffSmallDisk(dir string) error {
	back := dir + ".disk"
	if err := Owned(back, dir); err != nil {
		return err
	}
	if err := move(dir, back); err != nil {
		return errors.Join(err, os.RemoveAll(back))
	}
	return errors.Join(Unmount(dir), os.Remove(dir), os.Rename(back, dir))
}

// move copies all that is in a directory to another one that is empty, with its
// owner and its mode.
func move(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == to {
			return err
		}
		rel, err := filepath.Rel(to, path)
		if err != nil {
			return err
		}
		return like(path, filepath.Join(from, rel))
	})
}
