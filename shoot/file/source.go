// Package file follows one file that names the node networks, through every way in which files change: rewritten in place,
// renamed over, swapped by kubelet's links, gone and back again.
package file

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/shoot"
)

const (
	// settle is how long a doubtful state of the file must last to be believed. A writer that does not rename may be in the
	// middle: the file is empty for a moment, or ends early.
	settle = 300 * time.Millisecond
	// gap is the least time between two looks, so that a flood of events costs no more than a trickle.
	gap = 50 * time.Millisecond
	// defaultPoll stands in for a poll time that is not positive.
	defaultPoll = 10 * time.Second
)

// Source is a file that is followed. Its report never names less because of trouble with the file.
type Source struct {
	path string
	poll time.Duration
	log  *zap.Logger
	// mounted is the warning that the file will not change, or empty.
	mounted []string

	mu     sync.Mutex
	report shoot.Report

	// What follows belongs to whoever looks: New at first, then Run.
	last    shoot.Reading
	doubt   doubt
	decoded decoded
}

// doubt is a state of the file that is not believed yet, and since when it has been the same.
type doubt struct {
	state string
	since time.Time
}

// decoded remembers the last content. During a flood of events in its directory the file is read often, but decoded once.
type decoded struct {
	sum     [sha256.Size]byte
	reading shoot.Reading
	err     error
}

// New returns a source that has read the file once, so its first report counts. Afterwards Run reads the file when its
// directory changes, and in any case once in poll.
func New(path string, poll time.Duration, log *zap.Logger) *Source {
	path = filepath.Clean(path)
	if poll <= 0 {
		poll = defaultPoll
	}
	s := &Source{path: path, poll: poll, log: log, report: shoot.Report{Name: "shoot-file", Ref: path}}
	if isMountPoint(path) {
		const warning = "the shoot file is mounted by itself (subPath), so a new version of it will not arrive; mount its directory instead"
		s.mounted = []string{warning}
		log.Warn(warning, zap.String("path", path))
	}
	s.look(time.Now())
	return s
}

// Report returns what the file says at the moment.
func (s *Source) Report() shoot.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report
}

// Run follows the file until ctx ends and calls changed after each change of the report. Events only wake it: which file
// they name does not matter, and one that is lost is made up for by the next poll.
func (s *Source) Run(ctx context.Context, changed func()) {
	w := &watch{dir: filepath.Dir(s.path), log: s.log}
	defer w.close()
	ticker := time.NewTicker(s.poll)
	defer ticker.Stop()
	a := newAlarm()
	defer a.timer.Stop()
	looked := time.Now()
	a.at(looked)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			a.at(time.Now())
		case _, open := <-w.events():
			w.heard(open)
			a.at(looked.Add(gap))
		case _, open := <-w.errors():
			w.heard(open)
			a.at(looked.Add(gap))
		case <-a.timer.C:
			a.rang()
			// The watch goes first: what changes after the look must be heard.
			w.ensure()
			looked = time.Now()
			news, again := s.look(looked)
			if again > 0 {
				a.at(looked.Add(again))
			}
			if news {
				changed()
			}
		}
	}
}

// look reads the file and updates the report. It returns whether the report is new, and after what time it must be called
// again to settle a doubt, or 0.
func (s *Source) look(now time.Time) (news bool, again time.Duration) {
	next, sum, err := s.read()
	holds := s.last
	if err == nil {
		holds, err = shoot.Accept(s.last, next)
	}
	state := ""
	switch {
	case !s.report.Known:
		// There is nothing to lose yet.
	case err != nil:
		state = "trouble"
	case len(shoot.Lost(s.last, holds)) > 0:
		state = string(sum[:])
	}
	if again = s.doubt.remaining(state, now); again > 0 {
		// What is new in it can be fenced at once, whatever becomes of the rest.
		holds, err = shoot.Merge(s.last, holds), s.trouble()
	} else if err != nil {
		err = s.describe(err)
	}
	s.last = holds
	return s.publish(holds, err, now), again
}

// remaining returns how long a state must last yet to be believed. The empty state is beyond doubt.
func (d *doubt) remaining(state string, now time.Time) time.Duration {
	if state != d.state {
		*d = doubt{state: state, since: now}
	}
	if state == "" {
		return 0
	}
	return max(0, settle-now.Sub(d.since))
}

func (s *Source) read() (shoot.Reading, [sha256.Size]byte, error) {
	data, err := readFile(s.path)
	if err != nil {
		return shoot.Reading{}, [sha256.Size]byte{}, err
	}
	if sum := sha256.Sum256(data); sum != s.decoded.sum {
		s.decoded.sum = sum
		s.decoded.reading, s.decoded.err = shoot.Decode(data)
	}
	return s.decoded.reading, s.decoded.sum, s.decoded.err
}

// trouble is what the report says is wrong.
func (s *Source) trouble() error { return s.Report().Err }

func (s *Source) describe(err error) error {
	if s.report.Known {
		return fmt.Errorf("shoot file %s: %w; what it named before stays fenced, correct the file", s.path, err)
	}
	return fmt.Errorf("shoot file %s: %w; no node network is known from it yet", s.path, err)
}

// publish makes the report of what holds and returns whether it differs from the one before.
func (s *Source) publish(holds shoot.Reading, trouble error, now time.Time) bool {
	before := s.Report()
	next := before
	next.Networks = ranges.Of(holds.Networks...).Prefixes()
	next.Known = before.Known || len(next.Networks) > 0
	next.Err = trouble
	next.Warnings = slices.Concat(s.mounted, holds.Warnings)
	if before.Same(next) {
		return false
	}
	if !slices.Equal(before.Networks, next.Networks) {
		next.LastChange = now
	}
	s.mu.Lock()
	s.report = next
	s.mu.Unlock()
	s.tell(before, next)
	return true
}

// tell writes the one log line of a change.
func (s *Source) tell(before, next shoot.Report) {
	log := s.log.With(zap.String("path", s.path), zap.Int("networks", len(next.Networks)))
	if len(next.Warnings) > 0 {
		log = log.With(zap.Strings("warnings", next.Warnings))
	}
	if !slices.Equal(before.Networks, next.Networks) {
		log = log.With(zap.Stringers("was", some(before.Networks)), zap.Stringers("is", some(next.Networks)))
	}
	switch {
	case next.Err != nil:
		log.Warn("trouble with the shoot file", zap.Error(next.Err))
	case before.Err != nil:
		log.Info("the shoot file is in order again")
	default:
		log.Info("node networks taken from the shoot file")
	}
}

// some keeps a log line readable.
func some(networks []netip.Prefix) []netip.Prefix { return networks[:min(len(networks), 20)] }
