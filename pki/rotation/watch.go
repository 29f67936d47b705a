package rotation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// watchTime is how long a watch is asked for at most. Its end makes a pass, so that a watch which has silently died hides nothing
// for longer.
const watchTime = 30 * time.Second

// wait returns when one of the objects has changed since a version, or when something is due. Events only wake: every pass reads all.
func (k *Keeper) wait(ctx context.Context, api API, versions [2]string) error {
	ctx, cancel := context.WithTimeout(ctx, min(watchTime, k.Plan.Due(k.authorities, k.State().Serving, k.seen, time.Now())))
	defer cancel()
	woken := make(chan error, 2)
	for i, o := range []object{k.secret, k.configuration} {
		go func() { woken <- o.changed(ctx, api, versions[i]) }()
	}
	err := <-woken
	if ctx.Err() != nil && !errors.Is(err, errGone) {
		return nil // it is time
	}
	return err
}

// errGone says that the history which a watch needs is not there any more.
var errGone = errors.New("the watch cannot be begun here")

// changed returns nil when there is an event for the object after a version.
func (o object) changed(ctx context.Context, api API, version string) error {
	body, err := api.Get(ctx, o.list, url.Values{
		"watch": {"true"}, "fieldSelector": {"metadata.name=" + o.name}, "resourceVersion": {version},
		"timeoutSeconds": {strconv.Itoa(int(watchTime/time.Second) + 5)},
	})
	if err != nil {
		return fmt.Errorf("watch %s: %w", o.path(), err)
	}
	defer body.Close()
	var event struct {
		Type   string
		Object struct{ Message string }
	}
	if err := json.NewDecoder(body).Decode(&event); err != nil {
		return fmt.Errorf("watch %s: %w", o.path(), err)
	}
	if event.Type == "ERROR" {
		return fmt.Errorf("watch %s: %w: %s", o.path(), errGone, event.Object.Message)
	}
	return nil
}
