import { render } from 'preact'

import './styles.css'
import { App } from './app'
import { keepInPage } from './route'

keepInPage()
const place = document.getElementById('app')
if (place) render(<App />, place)
