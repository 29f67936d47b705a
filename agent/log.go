package agent

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"go.uber.org/zap"
)

// mostLogged is how many changes of one pass get a line each.
const mostLogged = 20

// logChanges writes one line per change, as the command that would make it; of a large change set, a count.
func logChanges[T fmt.Stringer](log *zap.Logger, layer string, changes []T) {
	if len(changes) > mostLogged {
		log.Info("change", zap.String("layer", layer), zap.Int("writes", len(changes)), zap.Stringer("first", changes[0]))
		return
	}
	for _, c := range changes {
		log.Info("change", zap.String("layer", layer), zap.String("write", strings.ReplaceAll(c.String(), "\n", "; ")))
	}
}

// age is how long ago something was, as messages tell it. It grows with every pass, which is no news.
var age = regexp.MustCompile(`, \S+ ago`)

// tell writes a line when the state is another than the one told last, and none for a pass that changed nothing.
func (a *Agent) tell(s *State) {
	d := s.At(time.Now())
	said := fmt.Sprint(d.Phase, d.Ready, d.Reason, age.ReplaceAllString(d.Message, ""))
	if said == a.memory.told {
		return
	}
	a.memory.told = said
	level := zap.InfoLevel
	if !d.Ready {
		level = zap.WarnLevel
	}
	a.log.Log(level, "state", zap.String("phase", string(d.Phase)), zap.Bool("ready", d.Ready),
		zap.String("reason", string(d.Reason)), zap.String("message", d.Message))
}
