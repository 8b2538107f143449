import { useState } from 'react'
import { createRoot } from 'react-dom/client'
import { BffError, cameBack, flux, signIn, signOut } from 'token-handler-bff-client'
import { useSession } from 'token-handler-bff-client/react'
import { showInVue } from './vue'

function App({ signInError }: { signInError: string | null }) {
  const [notice, setNotice] = useState(signInError ?? '')
  const [canHelp, setCanHelp] = useState(false)
  const explain = (error: unknown) => {
    setNotice(error instanceof BffError ? `${error.message} (${error.requestId})` : String(error))
    // A new sign-in may help, also where the session goes on.
    setCanHelp(error instanceof BffError && error.loginUrl !== null)
  }
  const session = useSession(explain)
  const read = () => flux<{ name: string }>('temperature').then(({ name }) => setNotice(name), explain)
  if (session === undefined) return <p role="status">{notice}</p>
  return (
    <>
      <p role="status">{notice}</p>
      {(canHelp || !session.authenticated) && (
        <button type="button" onClick={() => signIn().catch(explain)}>
          Sign in
        </button>
      )}
      {session.authenticated && (
        <button type="button" onClick={read}>
          Read
        </button>
      )}
      {session.authenticated && (
        <button type="button" onClick={() => signOut().catch(explain)}>
          Sign out
        </button>
      )}
    </>
  )
}

createRoot(document.querySelector('#react')!).render(<App signInError={cameBack()} />)
showInVue('#vue')
