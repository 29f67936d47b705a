package file

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

// watch hears of changes in a directory. It watches the directory and not the file: kubelet never changes the file, it
// swaps the link ..data beside it. All of it is best effort, as the poll finds what goes unheard.
type watch struct {
	dir     string
	log     *zap.Logger
	watcher *fsnotify.Watcher
	// watched is the directory that is watched, which need not be the one now at dir.
	watched os.FileInfo
	// failed is the last failure, logged once and not at every poll.
	failed string
}

// ensure watches the directory that is at dir now, if there is one.
func (w *watch) ensure() {
	if err := w.follow(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		if w.failed != err.Error() {
			w.failed = err.Error()
			w.log.Warn("changes of the shoot file are seen by polling only; "+
				"if this is a limit, raise fs.inotify.max_user_instances or max_user_watches",
				zap.String("directory", w.dir), zap.Error(err))
		}
		return
	}
	w.failed = ""
}

func (w *watch) follow() error {
	info, err := os.Stat(w.dir)
	if err != nil {
		return err
	}
	if w.watcher == nil {
		if w.watcher, err = fsnotify.NewWatcher(); err != nil {
			w.watcher = nil
			return err
		}
		w.watched = nil
	}
	// A new directory may get the inode number of the one deleted before; then only the list of watches shows the difference.
	if w.watched != nil && os.SameFile(w.watched, info) && slices.Contains(w.watcher.WatchList(), w.dir) {
		return nil
	}
	// Not an error: a watch goes by itself with its directory.
	_ = w.watcher.Remove(w.dir)
	w.watched = nil
	if err := w.watcher.Add(w.dir); err != nil {
		return err
	}
	w.watched = info
	return nil
}

// events is nil, which blocks for ever, as long as there is no watcher.
func (w *watch) events() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

// errors tells of lost events, which are a reason to look like any other.
func (w *watch) errors() <-chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}

// heard takes note of whether the channel of an event is still open. A watcher that gave up is replaced by the next ensure.
func (w *watch) heard(open bool) {
	if !open {
		w.close()
	}
}

func (w *watch) close() {
	if w.watcher == nil {
		return
	}
	// Nothing is to be done about an error here: the descriptor is gone either way.
	_ = w.watcher.Close()
	w.watcher = nil
}
