package agent

import (
	"net/netip"
	"slices"
	"time"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/routes"
)

// memory is what one pass leaves for the next.
type memory struct {
	// adopted is the fence that an earlier process left. It stands in for sources that have not said anything yet.
	adopted []netip.Prefix
	// denied says that the first write has been made, looked that both layers have been read.
	denied, looked bool
	surroundings   surroundings
	basis          basis
	// links are those of the last read that succeeded.
	links routes.State
	// company says that another process of ours writes here as well.
	company bool
	// settled are the sources that have once been read in full and understood.
	settled map[string]bool

	started   bool
	inPlace   bool
	last      wanted
	repairs   Repairs
	severed   uint64
	losses    losses
	verified  time.Time
	duration  time.Duration
	unsettled int
	// waiting says that a translation may still come which would make a blocked network reachable.
	waiting bool
	failing int
	told    string
}

func (m *memory) settle(source string) {
	if m.settled == nil {
		m.settled = map[string]bool{}
	}
	m.settled[source] = true
}

// wanted is all that decides what the fence looks like besides the kernel itself.
type wanted struct {
	policy       policy.Policy
	translations []policy.Translation
}

func (w wanted) equal(o wanted) bool {
	return slices.Equal(w.policy.Networks, o.policy.Networks) && slices.Equal(w.policy.Allow, o.policy.Allow) &&
		slices.Equal(w.policy.Replies, o.policy.Replies) && slices.Equal(w.policy.Translated, o.policy.Translated) &&
		slices.Equal(w.translations, o.translations)
}

const (
	// minGap lets a burst of events become one pass.
	minGap = 5 * time.Millisecond
	// fightGap is how slow repairing gets while another program keeps undoing it, short enough for what looks like a fight and
	// is none; longGap is how slow once fightPasses in a row have had to write.
	fightGap    = 100 * time.Millisecond
	fightPasses = 60
	longGap     = time.Second
	// retryFirst is the first wait after a pass that could not read or write the kernel.
	retryFirst = 100 * time.Millisecond
	// translationPoll is how soon a blocked network is looked at again: legacy nat rules make no event, and the VPN's
	// containers add theirs after the fence is up.
	translationPoll = time.Second
)

// pace returns how long to rest before the next pass whatever happens, and how long to wait for a wake-up after that. Both
// and the pass itself fit into resync, which is the longest time between two read-backs.
//
// The rest is at least as long as the last pass took, so that a storm of events costs half a CPU at most. It doubles with every
// pass in a row that had to write: two programs that both want their jump first must not fight in a tight loop.
func (m *memory) pace(resync time.Duration) (gap, limit time.Duration) {
	gap = max(minGap, m.duration)
	switch {
	case m.unsettled > fightPasses:
		gap = max(gap, longGap)
	case m.unsettled > 1:
		gap = max(gap, min(minGap<<min(m.unsettled, 20), fightGap))
	}
	gap = min(gap, resync)
	limit = resync
	if m.waiting {
		limit = min(limit, translationPoll)
	}
	if m.failing > 0 {
		limit = min(limit, retryFirst<<min(m.failing-1, 20))
	}
	return gap, max(0, limit-gap-m.duration)
}
