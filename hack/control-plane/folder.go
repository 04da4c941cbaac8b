package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const folderPrefix = "relaybook-control-plane-"

// makeFolder creates the data folder of this run. Its name contains our process id, and we hold a lock on a file in it
// until we end. With both, later launchers detect an abandoned folder.
func makeFolder() (dir string, lock *os.File, err error) {
	dir, err = os.MkdirTemp("", fmt.Sprintf("%s%d-", folderPrefix, os.Getpid()))
	if err != nil {
		return "", nil, err
	}
	lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", nil, err
	}
	return dir, lock, nil
}

// sweepFolders removes the folders of launchers that were killed with SIGKILL. Their children died with them.
func sweepFolders(opts options) {
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	for _, dir := range folders {
		if abandoned(dir) && os.RemoveAll(dir) == nil {
			opts.say("control-plane: removed %s, left by a launcher that was killed", dir)
		}
	}
}

// abandoned reports whether no process holds the lock, and the owner is dead or the folder is older than a minute. The
// lock alone is not enough: the owner of a new folder may not have locked it yet. The process id alone is not enough
// either: it means nothing if containers share the temporary folder.
func abandoned(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrNotExist): // never locked, or partly removed
	case err != nil:
		return false // the folder of another user
	default:
		defer lock.Close()
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
			return false
		}
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), folderPrefix), "-")
	pid, err := strconv.Atoi(id)
	if err != nil {
		return false // not the folder of a launcher
	}
	dead := errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	return dead || time.Since(info.ModTime()) > time.Minute
}
