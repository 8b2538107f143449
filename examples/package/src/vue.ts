import { useSession } from 'token-handler-bff-client/vue'
import { createApp, h } from 'vue'

/** The end of the session, shown by Vue. */
export function showInVue(place: string): void {
  createApp({
    setup() {
      const session = useSession(console.error)
      return () =>
        h('p', session.value?.authenticated ? `Signed in until ${session.value.expiresAt}` : 'Not signed in')
    },
  }).mount(place)
}
