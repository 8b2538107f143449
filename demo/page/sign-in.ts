import { signIn } from '../../client/bff-client.ts'
import { keepForms } from './kept-forms.ts'

/** Leaves for the sign-in, after a click. What is typed is there when the page comes back. */
export function goToSignIn(): void {
  keepForms()
  void signIn().catch(() => {})
}
