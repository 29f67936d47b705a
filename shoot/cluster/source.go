// Package cluster watches one object of a Kubernetes API server that names the node networks: a Cluster, with its Infrastructure
// beside it, or a Shoot.
package cluster

import (
	"context"
	"io"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/shoot"
)

// API is a connection to the API server.
type API interface {
	// Get returns the body of a good answer as it arrives.
	Get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error)
	// Close ends the connections that no request uses.
	Close()
}

// Cache keeps the last good statement for the next process.
type Cache interface {
	Load(ref string) (shoot.Statement, bool, error)
	Save(shoot.Statement) error
}

// Options are what a source needs.
type Options struct {
	Ref Ref
	// Connect reads the configuration anew. It is called after each failure.
	Connect func() (API, error)
	Cache   Cache
	Log     *zap.Logger
}

// Source is one object that is followed. Its report never names less because of trouble with the API server.
type Source struct {
	Options
	// beside is the Infrastructure of a Cluster, or nil.
	beside *Source
	// named receives the name of the object if it is not known from the start.
	named chan string
	ref   string

	mu     sync.Mutex
	report shoot.Report
	// What follows belongs to New at first, then to Run.
	belief  belief
	cached  error
	saved   shoot.Statement
	pace    pace
	changed func()
	// doubtful says that the last watch failed, so that a list alone does not show that all is well.
	doubtful bool
}

// New returns a source that knows what the cache knows. Run asks the API server.
func New(o Options) *Source {
	s := newSource(o, "shoot", decisive)
	if o.Ref.Kind == Cluster {
		// The namespace of a shoot's control plane has the name of its Cluster.
		o.Ref = Ref{Kind: Infrastructure, Namespace: o.Ref.Name}
		s.beside = newSource(o, "infrastructure", additional)
		s.beside.named = make(chan string, 1)
	}
	return s
}

func newSource(o Options, name string, r role) *Source {
	s := &Source{Options: o, belief: belief{ref: o.Ref, role: r}, ref: o.Ref.key()}
	s.report = shoot.Report{Name: name, Ref: o.Ref.String()}
	kept, there, err := o.Cache.Load(s.ref)
	if there {
		s.belief, s.saved = s.belief.remember(kept), kept
	}
	if s.cached = err; err != nil {
		o.Log.Warn("the cache is ignored", zap.String("object", s.report.Ref), zap.Error(err))
	}
	s.publish()
	return s
}

// Beside returns the source for the Infrastructure beside a Cluster, or nil. It gets the object's name from s, so both must run.
func (s *Source) Beside() *Source { return s.beside }

// Report returns what the object says at the moment.
func (s *Source) Report() shoot.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report
}

// Run follows the object until ctx ends and calls changed after each change of the report.
func (s *Source) Run(ctx context.Context, changed func()) {
	s.changed = changed
	if !s.identify(ctx) {
		return
	}
	for {
		err := s.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		s.belief = s.belief.lose(err)
		s.publish()
		pause := time.NewTimer(s.pace.failed(retryAfter(err), s.belief.longest(err)))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// identify waits for the name of the object where another one tells it.
func (s *Source) identify(ctx context.Context) bool {
	if s.named == nil {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case s.Ref.Name = <-s.named:
		s.belief.ref = s.Ref
		return true
	}
}

// tellBeside passes on the name of the Shoot, which the Infrastructure shares.
func (s *Source) tellBeside(name string) {
	if s.beside == nil || name == "" {
		return
	}
	select {
	case s.beside.named <- name:
	default: // it has been told
	}
}

// take makes what the API server said of the object known to all who need it.
func (s *Source) take(o object) {
	s.belief = s.belief.hear(o)
	s.publish()
	s.tellBeside(o.shootName)
}

func (s *Source) miss() {
	s.belief = s.belief.miss()
	s.publish()
}

// reach takes note that the API server answers.
func (s *Source) reach() {
	s.belief = s.belief.reach()
	s.publish()
}

// publish makes the report of what is believed, tells of changes, and keeps them for the next process. The disk comes last: a slow
// one must not delay the fence.
func (s *Source) publish() {
	s.update()
	if s.save() {
		s.update()
	}
}

// update makes the report of what is believed.
func (s *Source) update() {
	before := s.Report()
	next := s.belief.fill(before)
	next.Networks = ranges.Of(s.belief.held.Reading.Networks...).Prefixes()
	if s.cached != nil {
		next = withCacheTrouble(next, s.cached)
	}
	if before.Same(next) {
		return
	}
	if !slices.Equal(before.Networks, next.Networks) {
		next.LastChange = time.Now()
	}
	s.mu.Lock()
	s.report = next
	s.mu.Unlock()
	s.tell(before, next)
	if s.changed != nil {
		s.changed()
	}
}

// save keeps what holds, if it is new in more than its revision: Clusters are written often, networks change seldom. What is
// enforced is kept even while the API server cannot be followed, or a restart in that time would fence less. It returns whether there
// is news of the cache itself.
func (s *Source) save() bool {
	held := s.belief.held
	held.Ref = s.ref
	if !s.belief.known || s.saved.Ref != "" && held.UID == s.saved.UID &&
		slices.Equal(held.Reading.Networks, s.saved.Reading.Networks) && slices.Equal(held.Reading.Fields, s.saved.Reading.Fields) {
		return false
	}
	before := s.cached
	s.cached, s.saved = s.Cache.Save(held), held
	if s.cached != nil {
		s.Log.Warn("trouble with the cache", zap.String("object", s.report.Ref), zap.Error(s.cached))
	}
	return text(before) != text(s.cached)
}

// tell writes the one log line of a change.
func (s *Source) tell(before, next shoot.Report) {
	log := s.Log.With(zap.String("object", next.Ref), zap.Int("networks", len(next.Networks)))
	if len(next.Warnings) > 0 {
		log = log.With(zap.Strings("warnings", next.Warnings))
	}
	if !slices.Equal(before.Networks, next.Networks) {
		log = log.With(zap.Stringers("was", some(before.Networks)), zap.Stringers("is", some(next.Networks)))
	}
	switch {
	case next.Err != nil:
		log.Warn("trouble with the node networks of the object", zap.Error(next.Err))
	case next.Away != nil:
		log.Warn("the object cannot be followed", zap.Error(next.Away))
	case before.Err != nil || before.Away != nil:
		log.Info("the object is followed again")
	default:
		log.Info("node networks taken from the object")
	}
}

// some keeps a log line readable.
func some(networks []netip.Prefix) []netip.Prefix { return networks[:min(len(networks), 20)] }

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// withCacheTrouble says what is wrong with the cache where it is read: beside what is wrong, or as a warning.
func withCacheTrouble(r shoot.Report, trouble error) shoot.Report {
	if r.Err != nil && !r.Known {
		r.Err = &named{causeOf(r.Err), joinedLine{r.Err, trouble}}
		return r
	}
	r.Warnings = append(slices.Clone(r.Warnings), trouble.Error())
	return r
}

// joinedLine is several errors in one line, as the state shows it.
type joinedLine []error

func (j joinedLine) Error() string {
	var parts []string
	for _, err := range j {
		parts = append(parts, err.Error())
	}
	return strings.Join(parts, "; ")
}

func (j joinedLine) Unwrap() []error { return j }
